"""What every store must do, told through `skep.store.protocol` alone."""
