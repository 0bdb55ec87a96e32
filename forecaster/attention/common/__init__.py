"""What several mechanisms share: checks, kernels, projections, patterns of visible keys."""
