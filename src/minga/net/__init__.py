"""Between processes: one listener, one greeting, one TLS type, for members and coordinator and for ranks alike.

Generation, MemberInfo      generation.py    who is in the run
Socket, connect, listen     sockets.py       connections that never block, plain or with TLS
introduce, hear, check      greeting.py      both sides prove that they know a secret
Listener                    listener.py      lets in who does, and is not held up by anybody else
Tls, load_tls               tls.py           certificates.py makes them
parse, decode               strict.py        JSON that somebody else wrote
explain, address_of         interfaces.py    which way packets go, and why they don't arrive
"""
