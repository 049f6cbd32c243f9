"""Real servers for tests and benchmarks. Needs the packages of the dev lock; the product never imports it."""
