"""Label sets shipped with Darkroom, as package data: JSON lists of [wnid, label] in class order."""
