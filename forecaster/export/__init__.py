"""A model in a form that other runtimes read: ONNX, or torch.export's.

`description` is what stands beside the model, `runtime` forecasts with ONNX Runtime: neither loads
torch. `graph` writes what torch traces, and checks it against the bundle first.
"""
