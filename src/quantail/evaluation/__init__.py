"""After training: how good is a policy on bars it has not seen, and is that more than luck?"""
