"""What `doit report` writes: verdicts as a table, JSON, JUnit XML, Markdown and an HTML page."""
