"""How Sphinx builds the site; ``make docs`` calls it on the folder that tools/docs put together."""

import nco_bench

project = "nco-bench"
author = "The nco-bench authors"
copyright = author
version = release = nco_bench.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["papers/files"]
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3

default_role = "py:obj"  # a name in single backticks is code, and a link where there is something to link to
highlight_language = "none"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
option_emphasise_placeholders = False

smartquotes = False  # two dashes are an option

html_theme = "furo"
html_title = f"nco-bench {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = None
linkcheck_timeout = 20
linkcheck_retries = 2
