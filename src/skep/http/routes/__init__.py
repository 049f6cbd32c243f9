"""The routes, one module per noun. Each gives a list of operations, which is also what the OpenAPI document is made of."""
