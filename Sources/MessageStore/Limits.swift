// Limits of the module.
