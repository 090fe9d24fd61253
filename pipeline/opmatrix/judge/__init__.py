"""How results differ, whether they may, what failing cases have in common, and the messages that say so."""
