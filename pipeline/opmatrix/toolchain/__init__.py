"""The toolchain: compiler, headers, the text of build.ninja, linking, and the symbol gate on compiled libraries."""
