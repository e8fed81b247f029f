// placeholder: see Commands.swift and Effects.swift
