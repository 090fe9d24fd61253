"""opmatrix: one declaration, one kernel and one reference per operator; the rest is derived."""
