"""The report as one page that needs no network: tables, pictures and plots that answer to the pointer."""
