"""Arrays of cases, references and expected outputs, data sets as files, and the comparison of results."""
