"""Real servers for tests and benchmarks. Needs the packages of the dev lock; no other package of the product imports it."""
