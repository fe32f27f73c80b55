"""PyTorch's fused Adam over one tensor of each size, on a CUDA device: what it reads and writes, per second.

Line by line: the bytes of a working set (parameters, gradients and two moments) in, the bytes per second of the median out.
"""

import json
import statistics
import sys


def start(device):
    try:
        import torch
    except ImportError as missing:
        return None, {"missing": str(missing)}
    if not torch.cuda.is_available():
        return None, {"missing": f"torch {torch.__version__} finds no CUDA device"}
    torch.cuda.set_device(device)
    return torch, {"version": f"torch {torch.__version__}"}


def measure(torch, size, rounds):
    elements = size // 16
    parameter = torch.full((elements,), 0.5, device="cuda", requires_grad=True)
    parameter.grad = torch.full((elements,), 0.01, device="cuda")
    adam = torch.optim.Adam([parameter], lr=0.01, fused=True)
    seconds = []
    for at in range(rounds + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        adam.step()
        end.record()
        end.synchronize()
        if at >= 3:
            seconds.append(begin.elapsed_time(end) / 1e3)
    # Parameters and moments are read and written, the gradient is read.
    return 7 * 4 * elements / statistics.median(seconds)


def main():
    device, rounds = int(sys.argv[1]), int(sys.argv[2])
    torch, told = start(device)
    print(json.dumps(told), flush=True)
    for line in sys.stdin if torch else []:
        print(json.dumps(measure(torch, int(line), rounds)), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
