# Long lists of template arguments become <..>, so that a report's line still ends with the function and its line.
:more
s/<([^<>]|<\.\.>){24,}>/<..>/
t more
