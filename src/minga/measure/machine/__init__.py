"""What this machine offers for Minga, what is missing, and what to do about it.

Nothing is changed and nothing is sent: it looks at files, asks libraries, and connects once to itself on loopback.
What can't be found out is `unknown`, never guessed. Functions that read files take the `root` below which they look, so
that tests can show them other machines.
"""
