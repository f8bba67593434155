"""What a node is: hardware and software by allow-list, from files of the kernel and answers of the usual tools.

Every module has pure parsers of text and one function that asks. A tool that is not there, fails or hangs is recorded
as such and costs its facts, never the run. Serial numbers, UUIDs, MAC addresses, GUIDs and server names are not taken.
"""
