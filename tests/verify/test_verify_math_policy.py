"""The policy of docs/verifiers.md, rule by rule, on variations of our own."""

import pytest

from rlctl.types import Prompt
from rlctl.verify import MathVerifier
from rlctl.verify.math import MathJudge

# gold, right answers, wrong answers
POLICY = {
    "numbers exactly": [
        (r"\frac{1}{2004!}", [r"1/2004!"], [r"\frac{1}{2006!}", "0"]),
        ("2^{-99}", [r"\frac{1}{2^{99}}", r"2\cdot 2^{-100}"], ["2^{-98}", "0"]),
        ("12345678901234567890", ["12345678901234567890.0"], ["12345678901234567891"]),
        ("1.04e-3", [r"1.04 \times 10^{-3}", "0.00104"], [r"1.04 \times 10^{-4}"]),
        (r"\frac{7}{4}", ["1 3/4", r"1\tfrac34", "1.75", "7/4"], ["13/4", "1 4/3", "1.7"]),
        ("10,\\!080", ["10080", "10{,}080", r"10\,080"], ["10, 080", "108"]),
        ("120", ["5!", r"\binom{10}{3}", r"2^3\cdot 15"], ["5!!", r"\binom{10}{2}"]),
        ("-7", ["−7", "–7"], ["7"]),
        ("0.5", ["½", r"\frac12", "٠.٥"], ["0.05"]),
        ("5", ["5^1", r"\frac{10}{2}", "+5", "5."], ["5+", "5^", "5 6", "5_", r"\overline{5}", "5i", "f(5)"]),
    ],
    "no rounding, except for a decimal gold": [
        (r"\sqrt{2}", [r"\frac{2}{\sqrt{2}}"], ["1.414214", "1.41421356237309504880"]),
        (r"\pi", [r"\frac{2\pi}{2}"], ["3.14159265358979323846", r"\frac{22}{7}"]),
        (r"\frac13", [], ["0.333333", "0.33333333333333333333"]),
        ("3.14159265", [r"\pi", "3.14159265"], ["3.1416", r"\frac{22}{7}"]),
        ("0.3333333333", [r"\frac13"], ["0.33"]),
        ("123456.7", ["123456.70"], ["123456.8"]),
        ("2.5", ["2.50", r"\frac52"], ["2.50001"]),
        ("x+1", ["1+x"], ["x+1.0000000000000001", "x+1.0000001"]),
        (r"\frac{\pi}{2^{99}}", [r"\pi\cdot 2^{-99}"], [r"\frac{\pi}{2^{98}}", "0"]),
        (r"\frac{x}{2004!}", [r"x\cdot\frac{1}{2004!}"], [r"\frac{x}{2006!}", "0"]),
    ],
    "units may be left out, but not differ": [
        (
            r"5\text{ cm}",
            ["5", "5 cm", r"5\,\mathrm{cm}", r"5\text{ centimetres}"],
            ["5 m", r"5\text{ cm}^2"],
        ),
        (r"5\text{ cm}", ["5cm"], [r"50\text{ mm}", "50 mm", "6"]),
        (
            r"15\mbox{ cm}^2",
            [r"15\text{ square centimeters}", "15 cm^2", r"15\ \mathrm{cm^2}"],
            [r"15\text{ cm}"],
        ),
        (r"864 \mbox{ inches}^2", ["864", r"864\text{ in}^2"], [r"864\text{ ft}^2"]),
        (r"60\text{ km/h}", [r"60\text{ km per hour}", "60"], [r"60\text{ miles per hour}"]),
        (r"90^\circ", ["90", "90°", r"90\text{ degrees}"], [r"90\text{ cm}"]),
        (r"\$18.90", ["18.9", r"18.90\text{ dollars}", r"\$18.90"], [r"18.90\text{ cents}", r"18.9\%"]),
        ("18", ["18 eggs", r"18\text{ eggs}", r"\$18", "18元", r"18\text{ km}"], ["18x", "18m", "18ab"]),
        ("18元", ["18", r"18\text{ yuan}"], ["18个"]),
        (r"2\sqrt{3}\text{ cm}", [r"2\sqrt3", r"\sqrt{12}\text{ cm}"], [r"2\sqrt3\text{ m}"]),
        (r"4\text{ apples}", [r"4\text{ apple}"], [r"4\text{ oranges}"]),
        ("2516_8", ["2516", "2516_{8}"], ["2516_7", "2561_8"]),
        ("6m", [r"m\cdot 6"], ["6", "6n", "6 cm"]),
    ],
    "words that say more than a unit": [
        (
            "42",
            [r"42\text{ people}"],
            [r"42\text{ is wrong}", r"42\text{ or more}", r"\text{not }42", r"42\text{ or }43"],
        ),
        ("25", [], [r"5\text{ squared}"]),
    ],
    "number words": [
        (r"3\text{ thousand}", ["3000", "3,000"], ["3"]),
        ("1500000", ["1.5 million", r"1.5\text{ million}"], [r"1.5\text{ billion}"]),
        (r"\$2 \text{ million}", ["2000000", r"\$2{,}000{,}000", r"\sqrt{4}\cdot10^6"], ["2", r"\sqrt{4}"]),
        ("3万", ["30000"], ["3"]),
    ],
    "percent": [
        (r"50\%", ["50", "50%", r"50\text{ percent}", r"\$50\%"], ["0.5", r"\frac12", r"50\text{ cm}"]),
        ("0.5", [r"50\%", "50%"], ["50"]),
        ("50", [r"50\%"], ["0.5"]),
        ("12%", [r"12\%"], ["0.12", "13%"]),
    ],
    "a name in front of the value": [
        ("5", ["x=5", "x = 5", r"\text{Area}=5", "f(2)=5", "m+n=5", "x_1=5"], ["2+x=5", "2x=5", "x^2+3=5"]),
        ("12", [r"3\times4=12", "x=3+9=12"], [r"3\times4=11=12", "12=13"]),
        (r"\frac12", [r"P(X=1)=\frac{1}{2}"], []),
        ("5", [], ["x>5", r"x\ge 5", r"x\ne 5", "0=0", "x=5=6", "6=5"]),
        ("x=5", ["5", r"x=\frac{10}{2}"], ["y=5", "x=6"]),
        ("f(x)=x+1", ["x+1", "f(x)=1+x"], ["f(x)=x-1"]),
        (r"m\frac{dv}{dt}+bv=f", [r"m\frac{dv}{dt}=f-bv"], ["f", r"m\frac{dv}{dt}=f+bv"]),
    ],
    "equations and inequalities": [
        ("2x+4y-3=0", ["4x+8y=6", r"y=\frac34-\frac{x}{2}"], ["2x+4y=0", "0=0", "y=y"]),
        ("x^2+1=0", ["-x^2=1"], ["x^2+2=0"]),
        ("y'+y=0", ["y'=-y"], ["y+y=0"]),
        ("(2,5)", ["2<x<5"], [r"2\le x<5"]),
        (r"[2,\infty)", [r"x\ge 2", r"2\leq x", r"x\in[2,\infty)"], ["x>2", "x<2"]),
        ("x<3", [r"(-\infty,3)", "3>x"], [r"(-\infty,3]", "x>3"]),
        (r"x \in [-2,7]", ["[-2,7]", r"-2\le x\le 7"], ["(-2,7]"]),
    ],
    "nothing left to be worked out": [
        (
            "2",
            [],
            [r"\int_0^2 dx", r"\sum_{k=1}^{2}1", r"\lim_{x\to2}x", r"\prod_{k=1}^{2}k", r"\frac{d}{dx}2x"],
        ),
        (r"\sum_{k=1}^n a_k", [r"\sum_{k=1}^{n}a_k"], [r"\sum_{k=0}^{n}a_k"]),
    ],
    "symbols": [
        ("2RC+R+C", ["C+R+2CR"], ["2rc+r+c"]),
        (r"\pi(R^2-r^2)", [r"\pi R^2-\pi r^2"], ["0", r"\pi(r^2-R^2)"]),
        (r"\sin^2 x", [r"1-\cos^2 x"], [r"\cos^2 x"]),
        ("2^{n+1}", [r"2\cdot 2^n"], ["2^n+1"]),
        (r"\frac{n(n+1)}{2}", [r"\binom{n+1}{2}"], [r"\binom{n}{2}"]),
        ("2i", ["(1+i)^2"], ["-2i"]),
        ("m", [r"\frac{2m}{2}"], ["2m", "M"]),
        ("ab", ["ba"], ["a+b"]),
    ],
    "collections": [
        (
            "(1,2)",
            [r"(1.0,\frac42)", "1,2", "(x,y)=(1,2)", "x=1, y=2"],
            ["(2,1)", r"\{1,2\}", "[1,2]", "(1,2,3)"],
        ),
        ("(312,123,231)", ["(312, 123, 231)"], ["312123231"]),
        ("(3,1)", [], ["(5,2)"]),
        ("1,2", ["2,1", r"\{2,1\}", r"x=1\text{ or }x=2", "1 and 2"], ["1", "1,2,3", "1,1"]),
        ("1", [r"\{1\}"], ["1,2", "1;2", r"\{1,2\}"]),
        ("x=2,\\ y=3", ["x = 2 and y = 3", "y=3, x=2", "2,3"], ["3,2", "x=3, y=2"]),
        (r"\pm 3", ["3, -3", r"x=\pm3", r"\{-3,3\}"], ["3", "3,3"]),
        (r"\{1\pm\sqrt{5},-2\}", [r"-2, 1+\sqrt5, 1-\sqrt5"], [r"-2, 1+\sqrt5"]),
        ("27,54,108,135", ["27, 54, 108, 135", "135,108,54,27"], ["2754108135"]),
        (r"(-\infty,2)\cup(3,\infty)", [r"(3,\infty)\cup(-\infty,2)"], [r"(-\infty,2)\cup[3,\infty)"]),
        (r"(45^\circ,60^\circ),(135^\circ,60^\circ)", ["(135,60),(45,60)"], ["(60,45),(135,60)"]),
        (
            r"\begin{pmatrix} 1/5 \\ -18/5 \end{pmatrix}",
            [r"\begin{bmatrix}0.2\\-3.6\end{bmatrix}"],
            [r"\begin{pmatrix}0.2&-3.6\end{pmatrix}"],
        ),
        (r"1,2,\ldots,n", [r"1, 2, \dots, n"], ["1,2,n", r"1,3,\ldots,n"]),
    ],
    "words and choices": [
        (r"\text{March } 3", [r"\text{March 3}", "march 3"], [r"\text{May 3}", "3"]),
        (r"\text{no solution}", ["No solution."], ["solution"]),
        ("east", [r"\text{East}"], ["seat", "west"]),
        ("星期三", [r"\text{星期三}"], ["星期四"]),
        ("B", ["(B)", "B.", r"\text{(B) } 42", "b"], ["A", r"A\text{ and }B", "(B) or (C)", "42"]),
        (r"\text{(D)}", ["D"], ["C"]),
    ],
}
CASES = [
    pytest.param(gold, answer, expected, id=f"{rule}: {gold} / {answer}")
    for rule, rows in POLICY.items()
    for gold, right, wrong in rows
    for answers, expected in ((right, True), (wrong, False))
    for answer in answers
]


@pytest.fixture(scope="module")
def judge():
    judge = MathJudge(MathVerifier(deadline_s=20.0))  # on a busy machine too
    yield judge
    judge.close()


@pytest.mark.parametrize(("gold", "answer", "expected"), CASES)
def test_policy(judge, gold, answer, expected):
    verdict = judge.judge(Prompt("set:1", (), gold), rf"So it is $\boxed{{{answer}}}$.")
    assert (verdict.correct, verdict.error) == (expected, None), verdict.reason
    assert verdict.answer is not None
    assert verdict.reason
