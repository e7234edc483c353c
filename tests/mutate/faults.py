# SPDX-License-Identifier: MIT
"""The small faults that can be planted in a C source: where, and what stands there instead."""

import bisect
import hashlib
import re

TOKEN = re.compile(r'''
  (?P<comment> /\*.*?\*/ | //[^\n]* )
| (?P<directive> ^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])* )
| (?P<space> \s+ )
| (?P<string> "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )
| (?P<number> 0[xX][0-9a-fA-F]+[uUlL]* | \d+[uUlL]* )
| (?P<name> [A-Za-z_]\w* )
| (?P<sign> <<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|. )
''', re.X | re.S | re.M)

# A sign that stands between two operands, and what is put in its place.
SWAPPED = {'<': ['<='], '<=': ['<'], '>': ['>='], '>=': ['>'], '==': ['!='], '!=': ['=='],
           '&&': ['||'], '||': ['&&'], '|': ['&'], '<<': ['>>'], '>>': ['<<'],
           '+=': ['-='], '-=': ['+='], '|=': ['&='], '&=': ['|='], '++': ['--'], '--': ['++']}
KINDS = {'<': 'bound', '<=': 'bound', '>': 'bound', '>=': 'bound'}
KEYWORDS = {'if', 'while', 'for', 'switch', 'return', 'sizeof', 'do', 'else', 'case', 'default',
            'goto', 'break', 'continue', 'asm', '__asm__', 'static', 'const', 'struct', 'enum',
            'union', 'unsigned', 'extern', 'typedef', '_Static_assert', 'static_assert'}


class Fault:
    """One change of a file: the text from begin to end is replaced."""

    def __init__(self, file, source, function, kind, begin, end, instead):
        self.file, self.function, self.kind = file, function, kind
        self.begin, self.end, self.instead = begin, end, instead
        first = source.text.rfind('\n', 0, begin) + 1
        last = source.text.find('\n', end)
        self.line = source.line_of(begin)
        # gcov counts a statement of several lines in its first one.
        self.first_line = source.line_of(source.statement_at(begin))
        self.last_line = source.line_of(end)
        self.before = squeeze(source.text[first:last])
        self.after = squeeze(source.text[first:begin] + instead + source.text[end:last])
        self.nth = 1  # of those that read the same, in this function

    @property
    def key(self):
        """It says which fault this is by its content, whatever else changes in the file."""
        nth = f' #{self.nth}' if self.nth > 1 else ''
        return f'{self.file}: {self.function}(): {self.before} => {self.after}{nth}'

    def rank(self, seed):
        """Faults with the lowest numbers are played: an edit elsewhere changes no choice."""
        return hashlib.sha256(f'{seed} {self.key}'.encode()).hexdigest()

    def applied(self, text):
        return text[:self.begin] + self.instead + text[self.end:]


def squeeze(text):
    return ' '.join(text.split())


class Source:
    def __init__(self, text):
        self.text = text
        self.starts = [0] + [at.end() for at in re.finditer('\n', text)]
        self.tokens = [(at.lastgroup, at.group(), at.start(), at.end())
                       for at in TOKEN.finditer(text)
                       if at.lastgroup not in ('comment', 'space', 'directive')]
        self.begins = [begin for _, _, begin, _ in self.tokens]
        self.partner = self._partners()

    def statement_at(self, place):
        """Where the statement that contains this place begins."""
        i = bisect.bisect_right(self.begins, place) - 1
        while i > 0 and self.text_at(i - 1) not in (';', '{', '}'):
            i -= 1
        return self.begins[i]

    def line_of(self, place):
        return bisect.bisect_right(self.starts, place)

    def _partners(self):
        partner, open_ones = {}, []
        for i, (_, text, _, _) in enumerate(self.tokens):
            if text in ('(', '[', '{'):
                open_ones.append(i)
            elif text in (')', ']', '}') and open_ones:
                partner[open_ones[-1]] = i
                partner[i] = open_ones.pop()
        return partner

    def text_at(self, i):
        return self.tokens[i][1] if 0 <= i < len(self.tokens) else ''

    def functions(self):
        """Yields the name, and the first and last token of each function's body."""
        i = 0
        while i < len(self.tokens):
            text = self.tokens[i][1]
            if text == '{' and i in self.partner:
                end = self.partner[i]
                if self.text_at(i - 1) == ')':
                    yield self.text_at(self.partner.get(i - 1, 1) - 1), i, end
                i = end
            i += 1


def is_operand_end(source, i):
    kind = source.tokens[i][0] if i >= 0 else ''
    if source.text_at(i) in KEYWORDS:
        return False
    return kind in ('name', 'number') or source.text_at(i) in (')', ']')


def begins_statement(source, i):
    before = source.text_at(i - 1)
    if before in (';', '{', '}', 'else', 'do', ':'):
        # Not the label's or the case's own words, nor the second part of "a ? b : c".
        return before != ':' or source.line_of(source.tokens[i][2]) != \
            source.line_of(source.tokens[i - 1][2])
    if before == ')':
        return source.text_at(source.partner.get(i - 1, 0) - 1) in ('if', 'while', 'for')
    return False


def dropped_statement(source, i):
    """The last token of a call or an assignment that begins here, and what it is, or None."""
    at = i
    while source.text_at(at) == '*':
        at += 1
    if source.tokens[at][0] != 'name' or source.text_at(at) in KEYWORDS:
        return None
    called = False
    while True:
        at += 1
        text = source.text_at(at)
        if text in ('.', '->'):
            at += 1
        elif text == '[':
            at = source.partner.get(at, at)
        elif text == '(':
            at = source.partner.get(at, at)
            called = True
        else:
            break
    if text == ';':
        return (at, 'call') if called else None
    if text not in ('=', '+=', '-=', '|=', '&='):
        return None
    while source.text_at(at) != ';':
        if at >= len(source.tokens):
            return None
        at = source.partner[at] if source.text_at(at) in '([{' else at
        at += 1
    return at, 'store'


def in_declaration(source, i):
    """The length of an array, or an argument of the compiler: no fault that a test can see."""
    if source.text_at(i - 1) == '[' and source.text_at(i + 1) == ']':
        return source.tokens[i - 3][0] == 'name' and source.text_at(i - 3) not in KEYWORDS
    return source.text_at(i - 2) == 'aligned' or source.text_at(i - 1) == '...' or (
        source.text_at(i + 1) == ')' and
        source.text_at(source.partner[i + 1] - 1) == '__builtin_expect')


def other_number(text):
    digits = text.rstrip('uUlL')
    value = int(digits, 16 if digits[:2] in ('0x', '0X') else 8 if digits[0] == '0' else 10)
    return str({0: 1, 1: 0}.get(value, value + 1)) + text[len(digits):]


def in_body(source, first, last):
    """Yields (kind, begin, end, instead) for each fault in a function's body."""
    in_head = 0  # of a for
    for i in range(first + 1, last):
        if source.text_at(i) == '(' and source.text_at(i - 1) == 'for':
            in_head = source.partner[i]
        kind, text, begin, end = source.tokens[i]
        if text in ('if', 'while') and source.text_at(i + 1) == '(':
            closing = source.partner[i + 1]
            inside = source.tokens[i + 1][3], source.tokens[closing][2]
            yield 'condition', *inside, '!(' + source.text[slice(*inside)] + ')'
        elif kind == 'number' and source.text_at(i - 1) != 'case' and \
                not in_declaration(source, i):
            yield 'constant', begin, end, other_number(text)
        elif text in ('true', 'false'):
            yield 'constant', begin, end, 'false' if text == 'true' else 'true'
        elif text == '!':
            yield 'condition', begin, end, ''
        elif text in ('+', '-') and is_operand_end(source, i - 1):
            yield 'operator', begin, end, '-' if text == '+' else '+'
        elif text in SWAPPED and (text in ('++', '--') or is_operand_end(source, i - 1)):
            for instead in SWAPPED[text]:
                yield KINDS.get(text, 'operator'), begin, end, instead
        if i > in_head and begins_statement(source, i):
            found = dropped_statement(source, i)
            if found and found[0] < last:
                yield found[1], begin, source.tokens[found[0]][2], ''


def faults_of(file, text):
    """All faults of a file."""
    source = Source(text)
    seen = {}
    for function, first, last in source.functions():
        for kind, begin, end, instead in in_body(source, first, last):
            fault = Fault(file, source, function, kind, begin, end, instead)
            seen[fault.key] = fault.nth = seen.get(fault.key, 0) + 1
            yield fault
