"""The doctor: is this sandbox what the training config expects?"""
