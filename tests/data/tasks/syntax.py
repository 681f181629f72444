import torch


def get_inputs(:
    pass
