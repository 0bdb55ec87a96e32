"""Export a model as ONNX, which other runtimes read.

`description` is the document beside the model, and `runtime` forecasts with ONNX Runtime; neither
loads torch. `graph` traces the model with torch, and checks it against the bundle before writing.
"""
