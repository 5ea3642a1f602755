"""A program that takes the arguments of Tesseract and reads what it is given: the text of a picture stands in its bytes.

    python fake_tesseract.py stdin stdout -l LANGUAGES

A picture of the tests has its text behind its end, after the word TEXT. One that says HANG takes all the time it gets.
"""

import resource
import sys

if __name__ == "__main__":
    _, source, target, option, languages = sys.argv
    assert (source, target, option) == ("stdin", "stdout", "-l")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 0
    picture = sys.stdin.buffer.read()
    text = picture.rpartition(b"TEXT")[2].decode()
    if "BROKEN" in text:
        sys.exit(1)
    sys.stdout.write(f"{text} ({languages})\n")
