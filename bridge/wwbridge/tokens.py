"""A task's text as a sequence of tokens that does not change when names, numbers, the order of definitions or the way a
library is imported do: what src/synth/similar.c compares texts by (docs/synth.md).

The classes and functions of the file are walked in depth; get_inputs(), get_init_inputs(), imports, values at the top
level, docstrings, annotations and super().__init__() are left out, since every task has them.  A syntax node becomes
its type.  A library's name (`nn.Linear`, `F.relu`, `x.softmax`) becomes its last part; all other names are the same
token, as are all numbers, all strings, and all attributes of self.  Names of keyword arguments are dropped."""

import ast

LEFT_OUT = ("get_inputs", "get_init_inputs")


class Walk(ast.NodeVisitor):
    def __init__(self, tree):
        self.out = []
        self.library = {}  # name in this file: the library's name
        for n in ast.walk(tree):
            if isinstance(n, (ast.Import, ast.ImportFrom)):
                for a in n.names:
                    self.library[(a.asname or a.name).split(".")[0]] = a.name.split(".")[-1]

    def body(self, statements):
        for s in statements:
            if isinstance(s, ast.Expr) and (isinstance(s.value, ast.Constant) or is_super(s.value)):
                continue
            self.visit(s)

    def generic_visit(self, node):
        if isinstance(node, (ast.expr_context, ast.alias, ast.Import, ast.ImportFrom)):
            return
        self.out.append(type(node).__name__)
        super().generic_visit(node)

    def visit_ClassDef(self, node):
        self.out.append("ClassDef")
        self.body(node.body)

    def visit_FunctionDef(self, node):
        self.out.append("FunctionDef")
        self.out += ["arg"] * len(node.args.args)
        self.body(node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node):
        if node.value is not None:
            self.visit(ast.Assign([node.target], node.value))

    def visit_Name(self, node):
        self.out.append(self.library.get(node.id, "id"))

    def visit_Attribute(self, node):
        if isinstance(node.value, ast.Name):
            if node.value.id == "self":
                self.out.append("own")
                return
            if node.value.id in self.library:
                self.out.append(node.attr)
                return
        elif self.library_path(node.value):
            self.out.append(node.attr)
            return
        self.out.append("." + node.attr)
        self.visit(node.value)

    def library_path(self, node):
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self.library

    def visit_Constant(self, node):
        self.out.append("num" if isinstance(node.value, (int, float)) and not isinstance(node.value, bool)
                        else type(node.value).__name__)

    def visit_keyword(self, node):
        self.visit(node.value)


def is_super(node):
    return (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Call)
            and isinstance(node.func.value.func, ast.Name) and node.func.value.func.id == "super")


def tokens(text):
    """The tokens with spaces between; raises what ast.parse() raises."""
    tree = ast.parse(text)
    walk = Walk(tree)
    for s in tree.body:
        if isinstance(s, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and s.name not in LEFT_OUT:
            walk.visit(s)
    return " ".join(walk.out)
