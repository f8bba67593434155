"""Everything that touches MLPerf: its logs, rules, reference convergence points and official tools."""
