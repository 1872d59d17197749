"""What goes wrong in linear-cross-entropy and linear-cross-entropy-backward, and what they say about a run."""
import glob
import os
import signal
import subprocess
import time

import numpy as np
from case import DATA, DONE, FILE, ONEHOT, USAGE, Case, bf16_bits, main
from linear import sixteenths
from losses import targets


class LinearCrossEntropyRefusals(Case):
    FORWARD = ("linear-cross-entropy", "--input", "x.npy", "--weight", "W.npy", "--target", "y.npy", "--loss", "l.npy")
    BACKWARD = ("linear-cross-entropy-backward", *FORWARD[1:7], "--grad-weight", "l.npy")

    def setUp(self):
        super().setUp()
        self.x, self.W, self.y = sixteenths(2, 3, 5), sixteenths(4, 5), targets(2, 3, classes=4)
        for name, array in (("x", self.x), ("W", self.W), ("y", self.y)):
            self.save(name + ".npy", array)

    def both(self, code, part, *flags):
        self.refused(code, part, *self.FORWARD, *flags)
        self.refused(code, part, *self.BACKWARD, *flags)

    def test_targets(self):
        for kind in ("<i8", ">i4", "<u1", "<u2", "<u8"):
            self.save("y.npy", np.array([[0, 1, 3], [3, 4, 5]], kind))
            self.both(DATA, "target[1, 1] (position 4) = 4 is outside [0, 4)")
        self.save("y.npy", np.array([[0, 1, 3], [2**64 - 100, 4, 5]], np.uint64))
        self.both(DATA, "target[1, 0] (position 3) = 18446744073709551516 is outside [0, 4)")
        self.save("y.npy", self.y.T)
        self.both(DATA, "target: shape must be that of input, f32 [2, 3, 5], without axis 2, is i64 [3, 2]")

    def test_shapes(self):
        for W, part in ((self.W[:, :4], "weight: must have as many columns as input, 5, has 4"),
                        (self.W[0], "weight: rank must be 2, is 1"), (self.W[0, 0], "weight: rank must be 2, is 0")):
            self.save("W.npy", W)
            self.both(DATA, part)
            self.refused(DATA, part, *self.FORWARD, "--grad-bias", "b.npy")
        self.save("W.npy", self.W)
        self.save("w.npy", np.ones((3, 2), np.float32))
        self.both(DATA, "bias: shape must be [4], one element for each class, is f32 [3, 2]", "--bias", "w.npy")
        self.both(DATA, "class weight: shape must be [4], one element for each class, is f32 [3, 2]", "--class-weight",
                  "w.npy")
        self.both(DATA, "token_weight: shape must be that of target", "--token-weight", "w.npy")
        self.refused(DATA, "lse: shape must be that of target", *self.BACKWARD, "--lse", "w.npy")
        self.refused(DATA, "loss: must have one element", *self.BACKWARD, "--grad-loss", "w.npy")
        self.refused(DATA, "entropy: shape must be that of target", *self.FORWARD, "--grad-bias", "b.npy",
                     "--grad-entropy", "w.npy")
        self.save("x.npy", self.x[0, 0, 0])
        self.both(DATA, "input: rank must be in [1, 8], is 0")

    def test_dtypes(self):
        self.save("w.npy", np.ones((2, 3)))
        self.refused(DATA, "entropy: dtype must be f32, is f64", *self.BACKWARD, "--grad-entropy", "w.npy")
        self.refused(DATA, "lse: dtype must be f32, is f64", *self.BACKWARD, "--lse", "w.npy")
        self.save("w.npy", np.ones(4))
        self.both(DATA, "bias: dtype must be that of input, f32, is f64", "--bias", "w.npy")
        self.save("W.npy", self.W.astype(np.float64))
        self.both(DATA, "weight: dtype must be that of input, f32, is f64")
        self.save("x.npy", self.x.astype(np.float64))
        self.refused(DATA, "dtype must be that of input, f64, is f32", *self.BACKWARD, "--grad-weight-dtype", "f32")
        self.save("x.npy", self.x.astype(np.int64))
        self.both(DATA, "input: dtype must be one of f32, f64, f16, bf16, is i64")

    def test_options(self):
        self.both(USAGE, "label_smoothing: must be in [0, 1], is 1.5", "--label-smoothing", 1.5)
        self.both(USAGE, "z_loss: must be finite and not negative, is -1", "--z-loss", -1)
        self.both(USAGE, "softcap: must be finite and positive, or 0 for none, is -1", "--softcap", -1)
        self.both(USAGE, "logit_scale: must be finite, is inf", "--logit-scale", "inf")
        self.both(USAGE, "'--class-axis' is not a known option", "--class-axis", 1)
        self.both(USAGE, "--reduction: must be none, mean or sum, is 1", "--reduction", 1)
        self.both(USAGE, "--dtype: no file here has two-byte void elements", "--dtype", "bf16")
        self.both(USAGE, "--grad-input-dtype: must be f32, is f64", "--grad-input-dtype", "f64")
        self.refused(USAGE, "--loss-dtype: must be f32 or f64, is f16", *self.FORWARD, "--loss-dtype", "f16")
        self.refused(USAGE, "ONEHOT_FORCE: must be one of", *self.FORWARD, env={"ONEHOT_FORCE": "none"})

    def test_outputs(self):
        self.refused(USAGE, "an output is required: --loss, --lse, --target-logit", *self.FORWARD[:7])
        self.refused(USAGE, "an output is required: --grad-input, --grad-weight or --grad-bias", *self.BACKWARD[:7])
        self.both(USAGE, "both name", "--grad-bias", "l.npy")
        self.refused(USAGE, "--lse and --grad-bias: both name a.npy", *self.FORWARD, "--lse", "a.npy", "--grad-bias",
                     "a.npy")

    def test_upstream(self):
        needs_one = "--grad-loss, --grad-log-probability or --grad-entropy is required with --reduction none"
        self.refused(USAGE, needs_one, *self.BACKWARD, "--reduction", "none")
        self.refused(USAGE, needs_one, *self.FORWARD, "--grad-bias", "b.npy", "--reduction", "none")
        self.save("g.npy", np.float32(1))
        for command in (self.FORWARD, self.BACKWARD[:7]):
            self.refused(USAGE, "upstream gradients are given, and none of --grad-input", *command, "--grad-loss",
                         "g.npy")

    def test_files(self):
        self.both(FILE, "nowhere/a.npy: cannot be created", "--grad-input", "nowhere/a.npy")
        os.unlink("W.npy")
        self.both(FILE, "W.npy: cannot be opened: No such file or directory")
        self.save("x.npy", bf16_bits(self.x))
        self.both(USAGE, "input: x.npy holds two-byte void elements; --dtype bf16 reads them")

    def test_interrupted_while_it_works(self):
        # 2^31 products through the reference take seconds.
        self.save("x.npy", np.zeros((1 << 13, 64), np.float32))
        self.save("W.npy", np.zeros((1 << 12, 64), np.float32))
        self.save("y.npy", np.zeros(1 << 13, np.int64))
        for command in (self.FORWARD, self.BACKWARD):
            run = subprocess.Popen([ONEHOT, *command, "--threads", "1"], stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "ONEHOT_FORCE": "ref"})
            while not glob.glob(".l.npy.*"):
                self.assertIsNone(run.poll())
                time.sleep(0.001)
            time.sleep(0.2)
            run.send_signal(signal.SIGINT)
            _, message = run.communicate(timeout=60)
            if run.returncode == DONE:  # a fast machine, or a slow test
                os.unlink("l.npy")
            else:
                self.assertEqual((run.returncode, message), (130, "onehot: interrupted; nothing was written\n"))
            self.assertEqual(sorted(os.listdir()), ["W.npy", "x.npy", "y.npy"])

    def test_explain(self):
        text = self.ok(*self.FORWARD, "--target-logit", "t.npy", "--grad-bias", "b.npy", "--explain", "--threads", 1)
        self.assertRegex(text, r"\Aoperator +linear_cross_entropy\ninput +x.npy: f32 \[2, 3, 5\], mapped\n"
                               r"weight +W.npy: f32 \[4, 5\], mapped\n")
        self.assertRegex(text, r"\nloss +l.npy: f32 \[\]\ntarget_logit +t.npy: f32 \[2, 3\]\n"
                               r"grad_bias +b.npy: f32 \[4\]\n")
        # 30 and 20 f32, 6 i64 and an upstream gradient of 1 in, 1 + 6 + 4 f32 out.
        self.assertRegex(text, r"\nbytes +252 bytes read, 44 bytes written\n")
        # One product for logits; its gradient is summed up for the bias without another.
        self.assertRegex(text, r"\norder +1 product, all logits in working memory\nproducts +2.4e-07 GFLOP, .* GFLOP/s\n")
        text = self.ok(*self.FORWARD, "--grad-input", "b.npy", "--explain", "--max-workspace", "1kb")
        self.assertRegex(text, r"\norder +3 products, 4 classes at a time\n")
        self.save("r.npy", np.ones((2, 3), np.float32))
        self.save("w.npy", np.ones(4, np.float32))
        text = self.ok(*self.BACKWARD, "--grad-log-probability", "r.npy", "--class-weight", "w.npy", "--explain",
                       env={"ONEHOT_FORCE": "ref"})
        self.assertRegex(text, r"\ngrad_log_probability r.npy: f32 \[2, 3\], mapped\nclass weight +w.npy: f32 \[4\]")
        self.assertRegex(text, r"\ngrad_weight +l.npy: f32 \[4, 5\]\nimplementation +ref\n")

    def test_reproducible(self):
        for name, array in (("x", self.x), ("W", self.W)):
            self.save(name + ".npy", bf16_bits(array))
        flags = ("--dtype", "bf16", "--explain", "--reproducible")
        for command in (self.FORWARD, self.BACKWARD):
            text = self.ok(*command, *flags)
            self.assertRegex(text, r"\nimplementation +cpu:fused, .*\n")
            self.assertRegex(text, r"\nrefused +cpu:bf16: reproducible asks for the bits that every CPU has\n")
            self.refused(USAGE, "reproducible asks for the bits that every CPU has", *command, *flags,
                         env={"ONEHOT_FORCE": "cpu:bf16"})

    def test_help(self):
        for command in ("linear-cross-entropy", "linear-cross-entropy-backward"):
            text = self.ok(command, "--help")
            for word in ("Example", "--bias", "--logit-scale", "--class-weight", "--softcap", "--grad-weight-dtype",
                         "--max-workspace", "--reproducible"):
                self.assertIn(word, text)
            self.assertNotIn("--class-axis", text)
            self.assertRegex(self.ok("--help"), rf"\n  {command}\s")


if __name__ == "__main__":
    main()
