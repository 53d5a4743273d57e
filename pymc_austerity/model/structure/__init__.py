"""The form of a likelihood term: linear predictors, features, derivatives."""
