"""What every room may use: errors, files, processes, versions, terminal and logs. Knows no operator."""
