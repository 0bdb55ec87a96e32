"""What knows nothing of forecasting: errors, files, the machine, processes, progress, names."""
