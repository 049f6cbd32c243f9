"""The tests, in folders by kind; CONTRIBUTING.md says which is which."""
