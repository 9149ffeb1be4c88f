"""Exact minimisers and regrets: the paper's theory on finite and compact spaces."""
