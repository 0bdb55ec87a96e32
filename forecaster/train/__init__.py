"""Training, the only package that imports lightning; nothing is imported here."""
