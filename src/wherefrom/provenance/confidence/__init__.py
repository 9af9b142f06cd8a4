"""Calibration, thresholds, and the guarantee for what is shown."""
