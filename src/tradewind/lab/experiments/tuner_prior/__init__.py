"""Priors 10x wrong: who finds weights as good as the best of a grid of fixed ones, and how soon."""
