"""PTX: tables, printing, assembly."""
