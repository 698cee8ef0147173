"""Tables and ablations of papers. Nothing imports this package, and no site installs it."""
