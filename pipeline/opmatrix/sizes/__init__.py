"""The language of sizes in `dims` and of rules for values: what they mean, and which calls obey them."""
