"""Template snippets of our own for make_template_cases.py, and the variables that they see."""

VARIABLES = {
    "s": "Hello World",
    "u": "Grüße, 世界! 🎉 ß",
    "sp": "  \t padded \n ",
    "lines": "one\ntwo\r\n\nthree\n",
    "empty": "",
    "html": "<a href=\"x\">it's & more</a>",
    "n": 7,
    "neg": -7,
    "f": 2.5,
    "big": 9007199254740993,
    "t": True,
    "no": False,
    "nil": None,
    "xs": [3, 1, 2],
    "words": ["banana", "Apple", "cherry", "apple"],
    "mixed": [1, "two", 3.0, None, True, [4, "five"], {"six": 7}],
    "d": {"b": 1, "a": 2, "C": [1, 2], "items": "shadow", "é": "ü"},
    "people": [
        {"name": "Ann", "age": 31, "city": {"name": "Oslo"}},
        {"name": "bob", "age": 25, "city": {"name": "Rome"}},
        {"name": "Cid", "age": 31, "city": {"name": "oslo"}},
        {"name": "Dee", "age": None},
    ],
    "tree": [{"v": 1, "c": [{"v": 2, "c": [{"v": 3, "c": []}]}, {"v": 4, "c": []}]}],
    "j": '{"a": [1, 2.50, "x"], "b": null}',
}

_EXPRESSIONS = """
s|u|sp|html|n|neg|f|big|t|no|nil|xs|words|mixed|d|missing|1.0|1e16|1e15|1e-5|0.0001|-0.0|1.5e300|100000.0|123456789.123
1e22|3.0|0.1+0.2|1/3|7//2|-7//2|7//-2|-7%3|7%-3|7.5//2|-7.5//2|-7.5%2|7.5%-2|2**10|2**-1|2.0**3|0**0|n/2|n+f|t+1|neg**2|-2**2
1/0|1//0|1%0|1.0/0|0x1F|0b101|0o17|1_000|012
'a'+'b'|'a'*3|3*'ab'|'a'*-1|'a'+1|1+'a'|[1]+[2]|[1]*2|(1,)+(2,)|[1]+(2,)|'a'~1~none~true~2.0|missing~'x'|'a' 'b' "c"|nil+1|missing+1|-s|+n|-t|-missing
1==1.0|1==true|'a'=='a'|[1,2]==[1,2]|[1]==(1,)|{'a':1}=={'a':1}|nil==none|missing==missing|missing==none|1<2<3|1<3<2|3>2>=2|1!=2|'a'<'b'|'B'<'a'
[1,2]<[1,3]|'a'<1|nil<1|missing<1|(1,'a')<(1,'b')|t==1|'1'==1|1 in xs|5 in xs|5 not in xs|'a' in d|'ell' in s|1 in s|'x' in missing|'x' in nil|'' in s|not t|not empty|not missing
t and s|no and s|empty or s|nil or no|1 and 2 or 3|not no and t|s if t|s if no|s if no else 'e'|'a' if no else 'b' if t else 'c'|(1,2)|(1,)|()|[]|{}|[1,[2,(3,)]]|{'a':1,'b':[none]}|{1:2,'x':{}}|{[1]:2}|{(1,2):3}
s[0]|s[-1]|s[99]|s[1:4]|s[:-1]|s[::-1]|s[::2]|s[4:1:-1]|s[-3:]|s[10:2]|s[::0]|s['a':]|u[0:4]|u[::-1]|u[7]|u[-1]|xs[0]|xs[-1]|xs[5]|xs[1:]|xs[::-1]|xs[-1:0:-1]|(1,2,3)[1:]|(1,2,3)[::-1]
'abcdef'[4:1:-1]|'abcdef'[::-2]|'abcdef'[-100:100]|'abcdef'[100:-100:-1]|'abcdef'[2:]|mixed[-1].six|mixed[5][1][0]|xs.0|d.b|d['b']|d['items']|d.nope|d['nope']|d.nope.x|missing.x|missing['x']|nil.x|n.x|s.x
d.get('b')|d.get('zz')|d.get('zz',5)|d.keys()|d.values()|d.items()|d.items()|list|d.keys()|list|d.copy()|d.update({'x':1})|d.pop('b')|d.clear()|d.setdefault('z',1)|xs.append(4)|xs.pop()|xs.pop(0)|xs.pop(9)|xs.insert(0,1)|xs.sort()|xs.extend([1])|xs.index(1)|xs.index(9)|xs.count(1)|xs.copy()
s.upper()|s.lower()|s.title()|s.capitalize()|s.swapcase()|u.upper()|u.lower()|u.title()|"it's a dog's life".title()|s.strip()|sp.strip()|sp.lstrip()|sp.rstrip()|s.strip('Hd')|s.lstrip('H')|s.rstrip('dl')|s.split()|s.split(' ')|s.split('l')|s.split('l',1)|s.split('o',-1)|s.split('')|sp.split()|' a  b c '.split(none,1)
'a,b,c'.rsplit(',',1)|' a  b c '.rsplit(none,1)|'a,b,c'.rsplit(',')|'aaa'.rsplit('aa')|lines.splitlines()|lines.splitlines(true)|s.partition(' ')|s.rpartition('o')|s.partition('zz')|s.rpartition('zz')|s.startswith('He')|s.startswith('x')|s.startswith(('x','H'))|s.endswith('ld')|s.endswith(['a'])|s.startswith(1)
s.find('o')|s.rfind('o')|s.find('zz')|u.find('世')|s.index('W')|s.index('zz')|s.rindex('l')|s.count('l')|s.count('')|'aaaa'.count('aa')|s.replace('l','L')|s.replace('l','L',1)|s.replace('','-')|''.replace('','x')|s.replace('o','')|', '.join(['a','b'])|','.join('abc')|','.join([1])|'-'.join(d)|'x'.join([])
'%s'.join(['a','b'])|s.center(21)|s.center(20,'*')|'ab'.center(5,'.')|'abc'.center(6,'.')|s.ljust(13,'.')|s.rjust(13)|'7'.zfill(3)|'-7'.zfill(4)|'abc'.zfill(2)|s.isalpha()|'abc'.isalpha()|'12'.isdigit()|''.isdigit()|'a1'.isalnum()|' '.isspace()|'AB'.isupper()|'ab1'.islower()|'aB'.islower()|'1'.isupper()
s.removeprefix('Hello ')|s.removesuffix('World')|s.removeprefix('x')|s.nope()|upper|s.__class__|s.__class__.x|s['upper']()|''.__class__.__mro__|xs.__len__()|d.__getitem__('a')
'{} {}'.format(1,'a')|'{0}{1}{0}'.format('x','y')|'{a}-{b}'.format(a=1,b=none)|'{0[b]} {0.b}'.format(d)|'{:>5}|{:<5}|{:^5}'.format(1,'a','b')|'{:05d}|{:+}|{: }'.format(42,7,7)|'{:.2f} {:e} {:g} {:%}'.format(3.14159,12345.678,0.0001,0.25)|'{:,} {:_}'.format(1234567,1234567)|'{:x} {:X} {:#x} {:o} {:b}'.format(255,255,255,8,5)|'{!r:>6} {!s}'.format('a',1)|'{{}}'.format()|'{'.format()|'}'.format()|'{}'.format()|'{x}'.format()
'{:{}}'.format('a',4)|'{:*^7}'.format('mid')|'{:.2}'.format('abcdef')|'{:d}'.format('a')|'{:s}'.format(1)|'{:.3}'.format(2.0)|'{}'.format([1,'a'])|'{:5}'.format(true)|'{:5}'.format(2.5)|'{0.__class__}'.format(s)|'{0.__class__.__mro__}'.format(s)|'{:x}'.format(1.5)|'{:>5}'.format(none)|'{}'.format(missing)|'{:0>4}'.format(7)|'{:=+5}'.format(7)|'{:.0f}'.format(2.5)
'%s' % 1|'%s %s' % (1,'b')|'%d%%' % 5|'%5d|%-5d|%05d' % (1,2,3)|'%.2f' % 1.005|'%x %o %X' % (255,8,255)|'%r' % 'a'|'%(a)s' % {'a':1}|'%s' % [1,2]|'%s %s' % 'a'|'%s' % (1,2)|'a' % 1|'%d' % 'x'|'%d' % 2.7|'%+d % d' % (1,1)|'%e' % 1234.5|'%10.3s|' % 'abcdef'|'%i' % true|'%q' % 1|'%' % 1|'%g' % 1e10|'%s' % none|'%#x' % 255
range(5)|range(5)|list|range(2,8,3)|list|range(5,0,-2)|list|range(0)|range(1,2)|range(0,10,2)|range(3)[1]|range(1,0,0)|range(100001)|range(1.5)|range()|3 in range(5)|dict(a=1,b=2)|dict({'a':1},b=2)|dict([('a',1)])|dict(1)|namespace(a=1).a|namespace(a=1).b|namespace({'x':2}).x|namespace(a=1)|cycler('a','b').next()
'a' 'b'.upper()|('a' 'b').upper()|"\\x41\\u00e9\\n\\t\\\\\\'\\101\\q"|'tab\\there'|"a'b"|'a"b'|['a\\'b','a"b','a\\'"b']|['\\n\\\\\\x00\\x7f\\u200b']|[u]|[1.0,none,true]|[missing]|{'k':missing}|true|True|none|None|false|False|[u'x']
s is string|n is string|n is number|f is number|t is number|t is integer|n is integer|f is float|t is boolean|n is boolean|nil is none|missing is none|s is defined|missing is defined|missing is not defined|missing is undefined|d.nope is defined|d is mapping|xs is mapping|xs is sequence|s is sequence|d is sequence|n is sequence|xs is iterable|s is iterable|n is iterable|missing is iterable|nil is iterable
range(2) is sequence|(1,) is sequence|missing is sequence|d.items() is sequence|d.items() is iterable|range is callable|s is callable|s.upper is callable|t is true|no is false|1 is true|n is odd|n is even|n is divisibleby 7|n is divisibleby(2)|s is lower|'ab' is lower|'AB' is upper|1 is eq 1|1 is equalto 1|1 is ne 2|2 is gt 1|2 is ge 2|1 is lt 2|1 is le 1|1 is sameas 1|nil is sameas none|1 is in [1,2]|'a' is in 'abc'|s is nosuchtest|s is not string
'upper' is filter|'nope' is filter|'defined' is test|s|e is escaped|s is escaped|2 is greaterthan 1|1 is lessthan 2|s is string and n is number|not s is string|s is not string or t|1 is not none
"""
_FILTERS = """
abs: neg, 2.5, -2.5, s, nil
attr('name'): people[0], s
attr('upper'): n
batch(2)|list: xs, [], 'abc'
batch(2,'-')|list: xs
capitalize: s, u, 'ABC dEF', n
center(21): s, u
count: s, u, xs, d
d('x'): missing, nil, s
default: missing
default('x'): missing, nil, empty, no, 0
default('x',true): missing, nil, empty, no, 0, s
default(default_value='y',boolean=true): empty
dictsort: d, {'b':1,'A':2,'c':0}, {2:1,1:2}, {1:2,'a':3}, xs
dictsort(true): {'b':1,'A':2,'c':0}
dictsort(by='value'): {'b':1,'A':2,'c':0}
dictsort(reverse=true): {'b':1,'A':2,'c':0}
dictsort(false,'nope'): d
e: html, s|safe, html|e
escape: html, n
filesizeformat: 1, 999, 1000, 123456789
filesizeformat(true): 1024, 10485760
first: xs, s, [], d, n, missing
float: '2.5', ' 3 ', 'x', n, nil, '1e3', '1_0', missing
float(9): 'x'
forceescape: html|e
format(1,2): '%s-%s', '%d'
format(a=1): '%(a)s'
from_json: j, 'x', n
groupby('age')|list: people[:3]
groupby('city.name')|map(attribute='grouper')|list: people[:3]
groupby('nope',default='z')|list: people[:1]
indent: lines, s, 'a\\n\\nb', n
indent(2,true): lines
indent(2,first=true,blank=true): lines
indent('> '): lines
int: '42', ' 42 ', '42.9', 'x', -2.9, nil, t, '0x1f', '-5', '+5', '1_000', '99999999999999999999x', missing
int(7): 'x'
int(0,16): '0x1f', 'ff'
int(base=2): '101'
items|list: d, missing, xs
join: xs, words, s, [], missing, n
join(', '): xs, mixed, d
join('-',attribute='name'): people
last: xs, s, [], 'ü'
length: s, u, xs, d, [], missing, n, nil, range(3)
list: s, d, xs, (1,2), missing, n
lower: s, u, n
map('upper')|list: words, xs
map('nosuch')|list: words
map(attribute='name')|list: people
map(attribute='city.name')|list: people[:3], people
map(attribute='zip',default='-')|list: people[:1]
map('default','x')|list: [1]
map('int')|list: ['1','2']
map('replace','a','o')|list: words
max: xs, words, [], mixed
max(attribute='age'): people[:3]
min: xs, words, [], [1,'a']
reject('odd')|list: xs
reject|list: [0,1,'',2]
rejectattr('age')|list|length: people
rejectattr('age','none')|map(attribute='name')|list: people
replace('l','L'): s, n
replace('l','L',1): s
replace('','-'): 'abc'
reverse: s, u
reverse|list: xs, d
round: 2.5, 3.5, 2.567, n, -2.5
round(2): 2.675, 1.005, 42.5555
round(1,'floor'): 42.55
round(0,'ceil'): 42.1
round(-1): 15, 25, 125.0
safe: html
safe + '<b>': s, 'x<y'
select('odd')|list: xs
select|list: [0,1,'',2]
select('equalto',1)|list: xs
select('in',[1,2])|list: xs
select('string')|list: mixed
select('nosuch')|list: xs
selectattr('age')|map(attribute='name')|join(','): people
selectattr('age','equalto',31)|map(attribute='name')|join(','): people
selectattr('age','==',31)|list|length: people
selectattr('city','defined')|list|length: people
selectattr('name','in',['Ann','Cid'])|list|length: people
slice(2)|list: xs, [1,2,3,4,5]
slice(3,'-')|list: [1,2,3,4]
sort: xs, words, s, mixed, []
sort(reverse=true): xs, words
sort(case_sensitive=true): words
sort(attribute='name')|map(attribute='name')|join(','): people
sort(attribute='age,name')|map(attribute='name')|join(','): people[:3]
string: n, nil, t, xs, missing, 2.0
sum: xs, [1.5,2], words, []
sum(attribute='age'): people[:3]
sum(start=10): xs
title: s, "it's a dog's life", 'foo-bar (baz) {q} [z] <w', u
tojson: mixed, d, u, html, missing, 1.0, nil, (1,2), range(2), {'a':{}}, [], {1:2,none:3,true:4,2.5:5}, '\\x01\\x7f\\u2028/', 1e16, d.items()
tojson(indent=2): mixed, d, [], {}
tojson(indent=2,sort_keys=true): {'b':1,'a':{'z':1,'y':2}}
tojson(ensure_ascii=true): u
tojson(separators=(',',':')): mixed, d
tojson(indent=1,separators=(',',': ')): {'a':[1,2]}
tojson(indent='--'): {'a':[1,2]}
tojson(true): u
tojson(sort_keys=true): d, {1:2,'a':3}
trim: sp, s, n, missing
trim('Hd'): s
truncate(5): s, 'foo bar baz qux'
truncate(9): 'foo bar baz qux'
truncate(9,true): 'foo bar baz qux'
truncate(11,false,'...',0): 'foo bar baz qux'
truncate(8,end='!'): 'foo bar baz qux'
unique|list: words, [1,1,2,1.0], s
unique(true)|list: words
unique(attribute='age')|map(attribute='name')|list: people
upper: s, u, n, nil
urlencode: 'a b&c/d', u
wordcount: s, u, sp
nosuchfilter: s
"""

_STATEMENTS = [
    # whitespace control
    "a\n{% if t %}\nb\n{% endif %}\nc\n", "a\n  {% if t %}\n  b\n  {% endif %}\n  c\n\n", "  {{ n }}\n  x", "a {%- if t -%} b {%- endif -%} c",
    "a {{- n -}} b", "a\n\n  {{- n }}\n", "  {%+ if t %}x{% endif %}", "{% if t +%}\nx{% endif %}", "{# c #}\nx", "  {# c #}\n  x", "a {#- c -#} b",
    "{#-#}x", "a  {#+ c +#}\nb", "{% raw %}{{ x }} {% if %}{% endraw %}", "{% raw -%}  {{ x }}  {%- endraw %}", "  {% raw %}\n a\n  {% endraw %}\nb",
    "x\r\ny\rz\n", "\n", "\n\n", "", "{{ n }}\n\n", "{% set a = 1 %}\n\n{{ a }}", "{{ '{{' }}{{ '}}' }}", "{{ {'a': {'b': 1}}['a'] }}", "{{ {'a':{}}}}", "{ {% if t %}{%{% endif %}",
    "a{% if t %}\n\nb{% endif %}", "\t{% if t %}\t{% endif %}\t", "x {% if t %} y\n {% endif %} z", "{{ n }}{% if t %} {% endif %}\n|", "{%- if t %}\n  a\n  {%- else %}\n b\n{%- endif %}",
    # if
    "{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}", "{% if no %}a{% elif t %}b{% else %}c{% endif %}", "{% if missing %}a{% else %}b{% endif %}",
    "{% if xs and not nil %}a{% endif %}", "{% if 1, 2 %}a{% endif %}", "{% if missing.x %}a{% endif %}", "{% if no %}{{ missing.x }}{% endif %}ok", "{% if no %}{{ s|nosuch }}{% endif %}ok",
    # for and loop
    "{% for x in xs %}{{ x }},{% endfor %}", "{% for x in [] %}a{% else %}b{% endfor %}", "{% for x in missing %}a{% else %}b{% endfor %}", "{% for x in nil %}a{% endfor %}", "{% for x in n %}a{% endfor %}",
    "{% for c in u %}[{{ c }}]{% endfor %}", "{% for k in d %}{{ k }},{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in xs %}a{% endfor %}", "{% for a, b in [(1,2),(3,4)] %}{{ a+b }},{% endfor %}",
    "{% for (a, (b, c)) in [(1,(2,3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for x in xs if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }},{% endfor %}", "{% for x in xs if x > 9 %}a{% else %}none{% endfor %}",
    "{% for x in xs %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.depth }}/{{ loop.depth0 }};{% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}", "{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}", "{% for x in xs %}{{ loop.cycle('a','b') }}{% endfor %}",
    "{% for x in [1,1,2,2,1] %}{{ loop.changed(x) }},{% endfor %}", "{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for x in xs %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ y }}{% endfor %}{% endfor %}",
    "{% for x in tree recursive %}<{{ x.v }}@{{ loop.depth }}{{ loop(x.c) }}>{% endfor %}", "{% for x in xs %}{{ loop(xs) }}{% endfor %}", "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}",
    "{% break %}", "{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% set x = 5 %}{% for x in xs %}{{ x }}{% endfor %}{{ x }}", "{% for x in xs %}{% endfor %}{{ x }}", "{% set a = 0 %}{% for x in xs %}{{ a }}{% set a = x %}{{ a }}{% endfor %}{{ a }}",
    "{% for x in range(3) %}{{ x }}{% endfor %}", "{% for x in xs|sort %}{{ x }}{% endfor %}", "{% for x in xs[::-1] %}{{ x }}{% endfor %}", "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}", "{% for x in (xs if t else []) %}{{ x }}{% endfor %}", "{{ loop }}", "{% for x in d|dictsort %}{{ x }}{% endfor %}",
    "{% for g in people[:3]|groupby('age') %}{{ g.grouper }}:{{ g.list|length }};{% endfor %}", "{% for a, b in people[:3]|groupby('age') %}{{ a }}{{ b|map(attribute='name')|join }}{% endfor %}", "{% for r in xs|batch(2) %}{{ r }}{% endfor %}", "{% set g = xs|map('string') %}{{ g|list }}{{ g|list }}", "{{ (xs|map('string'))[0] }}", "{{ xs|select('odd')|length }}", "{{ xs|select('odd')|first }}", "{{ xs|reverse|last }}",
    # set, scopes, namespace
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set a = 1, 2 %}{{ a }}", "{% set ns = namespace(x=1) %}{% for i in xs %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set d.x = 1 %}", "{% set ns.x = 1 %}", "{% set ns = namespace() %}{% set ns.a = [] %}{% set _ = ns.a.append(1) %}{{ ns.a }}{{ ns['a'] }}",
    "{% set a %}x{{ n }}\n{% endset %}[{{ a }}]", "{% set a | upper | replace('X','y') %}x{% endset %}{{ a }}", "{% set a %}{% set b = 1 %}{% endset %}{{ b }}", "{% if t %}{% set a = 1 %}{% endif %}{{ a }}", "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}", "{% set none = 1 %}", "{% set 1 = 2 %}",
    "{% set x = 1 %}{% set x = x + 1 %}{{ x }}", "{% set a = [] %}{% for x in xs %}{% set _ = a.append(x * 2) %}{% endfor %}{{ a }}{{ a.pop(0) }}{{ a }}", "{% set ns = namespace(d={}) %}{% set ns.d = dict(ns.d, k=1) %}{{ ns.d }}", "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter trim|replace('a','b') %} aa {% endfilter %}", "{% filter indent(2) %}a\nb{% endfilter %}",
    # macros
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c=5) }}|{{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}", "{% macro m(a, a2=a) %}{{ a2 }}{% endmacro %}{{ m(4) }}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(x) %}[{{ caller(x) }}]{% endmacro %}{% call(y) m(3) %}y={{ y }}{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}a{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}a{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(5) }}", "{% set g = 1 %}{% macro m() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ m() }}", "{% for x in xs %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m() %}{% set q = 1 %}{% endmacro %}{{ m() }}{{ q }}", "{% macro m(x) %}{{ x|upper }}{% endmacro %}{{ m('a')|length }}{{ m('a') is string }}{{ m('a') ~ 'b' }}{{ m.name }}",
    "{% macro m() %}\n  a\n{% endmacro %}\n[{{ m() }}]", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{{ m() }}{% macro m() %}{% endmacro %}", "{% macro m(x) %}{% if x is mapping %}{{ m(x.a) }}{% else %}{{ x }}{% endif %}{% endmacro %}{{ m({'a': {'a': 1}}) }}", "{{ range(*[1, 4])|list }}", "{{ dict(**{'a': 1}) }}", "{{ dict(**xs) }}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(**{'x': 1}) }}{{ m(*[2]) }}",
    "{% macro m(caller=none) %}{{ caller }}{% endmacro %}{{ m() }}", "{% set j = joiner(', ') %}{% for x in xs %}{{ j() }}{{ x }}{% endfor %}", "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "{% generation %}a{{ n }}{% endgeneration %}b", "{% for m in xs %}{% generation %}{{ m }}{% endgeneration %}{% endfor %}", "{% generation %}\nx\n{% endgeneration %}\n", "{% print n %}", "{% print n, s %}",
    # errors
    "{{ raise_exception('stop') }}", "{% if no %}{{ raise_exception('stop') }}{% endif %}fine", "{{ nofunction() }}", "{{ n() }}", "{{ s.upper.x() }}", "{{", "{{ 1", "{% if t %}", "{% for x in xs %}", "{% endif %}", "{% nosuchtag %}", "{{ 'abc }}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ }}", "{{ 1 2 }}", "{{ a. }}", "{{ | upper }}", "{{ a | }}", "{% set %}", "{% set a %}", "{% for in xs %}{% endfor %}", "{% for x xs %}{% endfor %}", "{# open", "{% raw %}x", "{{ @ }}", "{{ a is }}", "{{ f(a=1, 2) }}", "{{ f(**a, *b) }}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% extends 'x' %}", "{{ {1} }}", "{{ {1:} }}", "{{ a[] }}", "{{ 1 if }}", "{{ not }}", "{{ 1 + }}", "{{ s is string is string }}", "{% if %}{% endif %}", "{% macro %}{% endmacro %}", "{% call s %}{% endcall %}", "{% filter %}{% endfilter %}", "{{ x y }}", "{{ '\\ud800' }}", "{{ strftime_now('%d %b %Y %H:%M:%S %A %B %j %%') }}", "{{ strftime_now('%Y-%m-%d') }}", "{{ strftime_now('%-d/%y %I %p') }}", "{{ strftime_now() }}",
    "{{ \"Use '\"|safe + html + 'x'|safe + d|tojson }}", "{{ html|e|safe + html }}", "{{ (html|safe)[0:5] + '<' }}", "{{ 'a' ~ html|safe ~ '<' }}", "{{ xs|first + 1 }}", "{{ -xs|first }}", "{{ (-7)|abs }}", "{{ 1 + 2 * 3 - 4 / 2 }}", "{{ (1 + 2) * 3 }}", "{{ 2 * 3 ~ 4 }}", "{{ 1 ~ 2 + 3 }}", "{{ 10 - 2 - 3 }}", "{{ 2 ** 3 ** 2 }}", "{{ not 1 == 2 }}", "{{ 1 == 1 and 2 == 2 or x.y }}", "{{ d.a if d.a is defined else 'none' }}", "{{ n if n is number and n > 3 else 0 }}", "{{ ('a', 'b')|join }}", "{{ 1, 2 }}", "{{ xs[1:2], 3 }}",
]


def _snippets():
    for line in _EXPRESSIONS.strip().splitlines():
        parts, depth, quote, current = [], 0, "", ""
        for i, c in enumerate(line):  # splits at '|' outside brackets and strings; a filter stays with its value
            if quote:
                quote = "" if c == quote and line[i - 1] != "\\" else quote
            elif c in "'\"":
                quote = c
            elif c in "([{":
                depth += 1
            elif c in ")]}":
                depth -= 1
            if c == "|" and depth == 0 and not quote:
                parts.append(current)
                current = ""
            else:
                current += c
        for part in [*parts, current]:
            yield "{{ " + part + " }}"
    for line in _FILTERS.strip().splitlines():
        name, values = line.split(": ", 1)
        depth, quote, current = 0, "", ""
        for c in values + ",":
            if quote:
                quote = "" if c == quote else quote
            elif c in "'\"":
                quote = c
            depth += (c in "([{") - (c in ")]}")
            if c == "," and depth == 0 and not quote:
                yield "{{ " + current.strip() + "|" + name + " }}"
                current = ""
            else:
                current += c
    yield from _STATEMENTS
    for value in ("d.items()|list", "range(5)|list", "range(2,8,3)|list", "d.keys()|list", "(s|e) is escaped"):
        yield "{{ " + value + " }}"


SNIPPETS = list(dict.fromkeys(_snippets()))
