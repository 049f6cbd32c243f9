"""The routes, one module per noun. Each gives a list of routes, from which the OpenAPI document is made, too."""
