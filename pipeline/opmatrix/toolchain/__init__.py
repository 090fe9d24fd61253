"""What compiles: compiler, headers, the text of build.ninja, and the gate that judges the libraries."""
