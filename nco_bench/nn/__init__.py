"""What networks of several families share: attention layers, logit scales, threads. It knows no solver and no decoding."""
