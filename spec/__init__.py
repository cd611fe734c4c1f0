"""The specification of tile programs: the Markdown files in this folder."""
