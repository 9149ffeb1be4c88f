"""The latent-model control agent, trained as a population."""
