"""The toy tables of the sources, as dicts of lists: each with what its source claims and what is true.

Where our notes on a source state only the shape of a table (6.5, 7.14, 8.5, 8.7), the other cells are filled in so that
every stated fact holds.

A name that ends in `_claimed` is a negative example: the source's claim about it is wrong.
"""

# Table 6.1. Claim and truth: 2-anonymous (classes of 2 and 3 rows).
TABLE_6_1 = {"zip": ["33617", "33617", "33620", "33620", "33620"], "age": [24, 24, 35, 35, 35]}

# Table 6.2: raw rows, every one unique. Table 6.3: generalised; claim and truth: 2-anonymous.
TABLE_6_2 = {"zip": ["33617", "23620", "23622", "33617"], "age": [24, 41, 43, 29]}
TABLE_6_3 = {"zip": ["33617", "236**", "236**", "33617"], "age": ["20-29", "40-49", "40-49", "20-29"]}

# Table 6.4: table 6.2 with an outlier, which is to be suppressed. Truth: k = 1 after the generalisation of table 6.3.
TABLE_6_4 = {"zip": [*TABLE_6_2["zip"], "19352"], "age": [*TABLE_6_2["age"], 12]}
TABLE_6_4_GENERALISED = {"zip": [*TABLE_6_3["zip"], "19352"], "age": [*TABLE_6_3["age"], "10-19"]}

# Table 6.5. Claim and truth: 2-anonymous, and the second class is all heart disease, so l = 1.
TABLE_6_5 = {
    "zip": ["33617", "33617", "336**", "336**"],
    "age": ["20-29", "20-29", "40-49", "40-49"],
    "disease": ["Flu", "Cancer", "Heart disease", "Heart disease"],
}
# Table 6.6, zip generalised further. Claim: 2-diverse. Truth: with age as a quasi-identifier classes are as before,
# l = 1 (E-07). Only with age 20-49 for all, or without age, it is 2-diverse.
TABLE_6_6_CLAIMED = TABLE_6_5 | {"zip": ["33***"] * 4}
TABLE_6_6_REPAIRED = TABLE_6_6_CLAIMED | {"age": ["20-49"] * 4}

# Table 7.1 (exercise 1): raw rows; every (zip, gender) is unique.
TABLE_7_1 = {
    "name": ["John", "Alex", "Kishor", "Emily", "Ahmed"],
    "gender": ["M", "M", "M", "F", "M"],
    "zip": ["33617", "32113", "33613", "33617", "33620"],
    "salary": [78, 90, 65, 68, 75],
}

# Table 7.2 (exercise 2). Truth: k = 2; race of the first class is disclosed (l = 1), income has l = 2 in both.
TABLE_7_2 = {
    "age": ["21-40", "21-40", "31-40", "31-40"],
    "zip": ["336**", "336**", "34***", "34***"],
    "race": ["Black", "Black", "Asian", "White"],
    "income": [65_000, 130_000, 80_000, 85_000],
}

# Figure 7.13: nine patients, raw.
FIGURE_7_13 = {
    "name": ["Alex", "Emily", "Fathima", "Jeremy", "John", "Kishor", "Nataliya", "Ryan", "Samantha"],
    "zip": ["33620", "33617", "33620", "32005", "33617", "33613", "32102", "32026", "33625"],
    "age": [17, 45, 28, 29, 24, 31, 46, 32, 56],
    "gender": ["M", "F", "F", "M", "M", "M", "M", "M", "F"],
    "disease": ["TB", "Viral", "Cancer", "Viral", "Viral", "Cancer", "TB", "Cancer", "Heart"],
}
# Figure 7.14, rebuilt from what E-07 states; the cells of the four 32*** rows are not printed there, only that none is
# alone. Claim: 2-anonymous. Truth: three classes of one row, (336**, >30, Male), (336**, <30, Female) and (336**, >30,
# Female), so k = 1; and it is not truthful: only three patients have a zip 32xxx, and Emily's 33617 is shown as 32***.
FIGURE_7_14_CLAIMED = {
    "zip": ["336**", "32***", "336**", "32***", "336**", "336**", "32***", "32***", "336**"],
    "age": ["<30", "<30", "<30", "<30", "<30", ">30", ">30", ">30", ">30"],
    "gender": ["Male", "Male", "Female", "Male", "Male", "Male", "Male", "Male", "Female"],
    "disease": FIGURE_7_13["disease"],
}

# Figure 7.16: homogeneity. Truth: k = 4, l = 1, everybody in the class has cancer.
FIGURE_7_16 = {"zip": ["337**"] * 4, "age": [">35"] * 4, "disease": ["Cancer"] * 4}
# Figure 7.17: background knowledge. Truth: k = 4, l = 2; who can exclude one disease knows the other.
FIGURE_7_17 = {"zip": ["336**"] * 4, "age": ["<30"] * 4, "disease": ["Heart", "Heart", "Viral", "Viral"]}

# Figure 8.3. Claim and truth: k = 2, l = 1.
FIGURE_8_3 = {
    "zip": ["336**", "336**", "34***", "34***"],
    "age": ["31-40", "31-40", "21-40", "21-40"],
    "disease": ["Flu", "Cancer", "Viral", "Viral"],
}
# Figure 8.4, rows 1, 4 and rows 2, 3 regrouped. Claim and truth: l = 2; but "36" lies within 21-40 (E-07), so somebody
# aged 36 may be in either class: classes that overlap are not what the check of printed values sees.
FIGURE_8_4 = {
    "zip": ["3****"] * 4,
    "age": ["21-40", "36", "36", "21-40"],
    "disease": ["Flu", "Cancer", "Viral", "Viral"],
}
# Figure 8.5: similarity. Truth: l = 2, although both are cancer.
FIGURE_8_5 = {"zip": ["336**"] * 2, "age": ["31-40"] * 2, "disease": ["Melanoma", "Basal cell carcinoma"]}
# Figure 8.6: skewness. Claim: the second class is skewed. Truth: against this table the first one is (0.30 and 0.075);
# the example needs an outside population (E-07).
FIGURE_8_6_CLAIMED = {
    "zip": ["345**"] * 2 + ["33***"] * 8,
    "disease": ["Heart", "Viral"] + ["Heart"] * 7 + ["Viral"],
}

# Figure 8.7 (before) and 8.8 (after rows 2 and 8 are swapped). Claim: the swap brings the classes closer to the table.
# Truth: with equal ground distance t grows from 4/9 to 5/9; with the hierarchy it falls from 4/9 to 1/3.
_GROUPS = ["1"] * 3 + ["2"] * 3 + ["3"] * 3
FIGURE_8_7 = {
    "group": _GROUPS,
    "disease": [
        "ulcer", "gastritis", "stomach cancer", "gastritis", "flu", "bronchitis", "bronchitis", "pneumonia",
        "stomach cancer",
    ],
}  # fmt: skip
FIGURE_8_8_CLAIMED = {
    "group": _GROUPS,
    "disease": [
        "ulcer", "pneumonia", "stomach cancer", "gastritis", "flu", "bronchitis", "bronchitis", "gastritis",
        "stomach cancer",
    ],
}  # fmt: skip
DISEASES = {
    "ulcer": ["stomach", "any"], "gastritis": ["stomach", "any"], "stomach cancer": ["stomach", "any"],
    "flu": ["respiratory", "any"], "bronchitis": ["respiratory", "any"], "pneumonia": ["respiratory", "any"],
}  # fmt: skip

# AN-06: two releases of twelve rows each. Claim and truth: k = 4 and 6; distinct l = 1 and 3.
AN_06_FIRST = {
    "zip": ["130**"] * 12,
    "age": ["<30"] * 4 + ["≥40"] * 4 + ["3*"] * 4,
    "disease": ["AIDS", "Heart", "Viral", "Viral", "Cancer", "Heart", "Viral", "Viral"] + ["Cancer"] * 4,
}
AN_06_SECOND = {
    "zip": ["130**"] * 12,
    "age": ["<35"] * 6 + [">35"] * 6,
    "disease": ["AIDS", "TB", "Flu", "TB", "Cancer", "Cancer"] + ["Cancer"] * 3 + ["TB", "Viral", "Viral"],
}

# Figures 7.5 and 8.15 (ANON-10, MIN-13): a salary as a range, occupations as their ancestors.
FIGURE_7_5_SALARY = {56_000: "50000-99999", 85_000: "50000-99999"}
FIGURE_7_5_OCCUPATIONS = {"employed": ["engineer", "lawyer", "artist"], "unemployed": ["none"]}
# AN-02: a birth date as its decade, a postcode as its first three characters.
AN_02 = {"1984-07-02": "1980-1989", "33617": "336**"}
# Figure 7.16: the person whom the attacker knows to be in the class (ANON-17).
BOB = {"zip": ["33718"], "age": [36]}

# Listings 8.4 to 8.6 on Adult (ANON-33 to 35): the first classes as printed, (age, education-num, income: count).
# The figures are means of classes and merge classes of equal means (E-22); they are no quasi-identifiers to check.
ANON_33_COUNTS = {
    ("17.000", "7.2006"): {"<=50k": 334},
    ("18.2279", "7.2832"): {"<=50k": 451, ">50k": 1},
    ("21", "10"): {"<=50k": 568, ">50k": 2},
}
ANON_34_COUNTS = {
    ("17.7061", "7.2481"): {"<=50k": 785, ">50k": 1},
    ("20.0806", "9"): {"<=50k": 1707, ">50k": 5},
}
ANON_35_COUNTS = {
    ("26.6977", "8.1244"): {"<=50k": 10_248, ">50k": 677},
    ("25.7471", "10"): {"<=50k": 5_617, ">50k": 520},
}
# The third class of each run: only the line of one income is printed.
ANON_34_CUT = {("19.3203", "10"): {"<=50k": 1_301}}
ANON_35_CUT = {("29.4348", "13.2995"): {"<=50k": 3_385}}
