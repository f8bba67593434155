"""Two studies side by side: what changed between them, and what it did to time, throughput and convergence."""
