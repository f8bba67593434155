"""From a study to MLPerf's submission tree: what may be claimed, which runs count, the tree, and its official check."""
