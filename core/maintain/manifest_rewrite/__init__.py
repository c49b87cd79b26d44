"""`lake manifests`: write the manifests of a branch again, fewer of them and clustered by partition."""
