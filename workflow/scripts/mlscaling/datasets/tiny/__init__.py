"""Makers of small raw archives in an upstream layout, so that the tiny scale runs the real preparation."""
